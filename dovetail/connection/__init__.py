"""Live sessions: requests, replies and notifications over any transport. This is the lowest layer
that uses asyncio. Nothing in this package depends on a transport or on tools."""
