"""The published servers that are measured.

They were the first 30 of a list of 90 candidates that started on their own library, over stdio and
without network or real credentials; whether they start on Dovetail did not matter. The list began
with the reference servers, went on with databases and the servers of AWS Labs, and ended with other
popular packages. `pinned` marks those that no longer start after a plain `pip install`, because
release 2 of the official SDK is not compatible with them.
"""

from typing import NamedTuple


class PublishedServer(NamedTuple):
    """A server on PyPI, and how to start it."""

    requirement: str
    """The distribution and its version."""
    script: str
    """The console script that starts it."""
    peer: tuple[str, ...]
    """The library that it was written for, as installed with it."""
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    pinned: bool = False

    @property
    def name(self) -> str:
        return self.requirement.partition("==")[0]


SDK_1, SDK_2 = ("mcp==1.30.0",), ("mcp==2.3.0",)
FASTMCP_3, FASTMCP_4 = ("mcp==1.30.0", "fastmcp==3.4.10"), ("mcp==2.3.0", "fastmcp==4.1.2")
AWS = {
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_EC2_METADATA_DISABLED": "true",
}
CLOSED = "http://127.0.0.1:9"
MYSQL = {"MYSQL_HOST": "127.0.0.1", "MYSQL_PORT": "9", "MYSQL_USER": "u", "MYSQL_PASSWORD": "p"}
CLICKHOUSE = {
    "CLICKHOUSE_HOST": "127.0.0.1",
    "CLICKHOUSE_USER": "u",
    "CLICKHOUSE_PASSWORD": "p",
}
ELASTICSEARCH = {
    "ELASTICSEARCH_HOSTS": CLOSED,
    "ELASTICSEARCH_USERNAME": "u",
    "ELASTICSEARCH_PASSWORD": "p",
}
JIRA = {"JIRA_URL": CLOSED, "JIRA_USERNAME": "u", "JIRA_API_TOKEN": "x"}

SERVERS = (
    PublishedServer("mcp-server-git==2026.10.19", "mcp-server-git", SDK_2),
    PublishedServer("mcp-server-time==2026.10.19", "mcp-server-time", SDK_2),
    PublishedServer("mcp-server-fetch==2026.10.24", "mcp-server-fetch", SDK_2),
    PublishedServer(
        "mcp-server-sqlite==2025.4.25", "mcp-server-sqlite", SDK_1, ("--db-path", "test.db"),
        pinned=True,
    ),
    PublishedServer(
        "mcp-server-sentry==2025.1.14", "mcp-server-sentry", SDK_1, ("--auth-token", "x"),
        pinned=True,
    ),
    PublishedServer(
        "mysql-mcp-server==0.4.4", "mysql_mcp_server", SDK_1,
        environment={**MYSQL, "MYSQL_DATABASE": "d"},
    ),
    PublishedServer("redis-mcp-server==0.5.1", "redis-mcp-server", SDK_1),
    PublishedServer(
        "mcp-clickhouse==0.7.0", "mcp-clickhouse", ("mcp==2.3.0", "fastmcp==4.0.11"),
        environment=CLICKHOUSE,
    ),
    PublishedServer(
        "mcp-alchemy==2026.10.15.202659", "mcp-alchemy", SDK_2,
        environment={"DB_URL": "sqlite:///test.db"},
    ),
    PublishedServer(
        "elasticsearch-mcp-server==2.1.6", "elasticsearch-mcp-server",
        ("mcp==1.30.0", "fastmcp==3.4.7"), environment=ELASTICSEARCH,
    ),
    PublishedServer(
        "mcp-neo4j-cypher==0.6.0", "mcp-neo4j-cypher", ("mcp==1.22.0", "fastmcp==2.13.3")
    ),
    PublishedServer(
        "awslabs.aws-documentation-mcp-server==1.2.3", "awslabs.aws-documentation-mcp-server",
        SDK_2, environment=AWS,
    ),
    PublishedServer(
        "awslabs.aws-pricing-mcp-server==1.1.1", "awslabs.aws-pricing-mcp-server", SDK_2,
        environment=AWS,
    ),
    PublishedServer(
        "awslabs.dynamodb-mcp-server==2.1.8", "awslabs.dynamodb-mcp-server",
        ("mcp==1.26.0", "fastmcp==3.4.10"), environment=AWS,
    ),
    PublishedServer(
        "awslabs.cloudwatch-mcp-server==0.3.1", "awslabs.cloudwatch-mcp-server", SDK_2,
        environment=AWS,
    ),
    PublishedServer(
        "awslabs.iam-mcp-server==1.1.2", "awslabs.iam-mcp-server", SDK_2, environment=AWS
    ),
    PublishedServer("mcp-atlassian==0.23.1", "mcp-atlassian", FASTMCP_3, environment=JIRA),
    PublishedServer("arxiv-mcp-server==0.8.2", "arxiv-mcp-server", SDK_1),
    PublishedServer("duckduckgo-mcp-server==0.7.0", "duckduckgo-mcp-server", SDK_2),
    PublishedServer("wikipedia-mcp==2.0.1", "wikipedia-mcp", FASTMCP_4),
    PublishedServer("mcp-youtube-transcript==0.3.5", "mcp-youtube-transcript", SDK_1, pinned=True),
    PublishedServer("excel-mcp-server==2.2.2", "excel-mcp-server", SDK_2, ("stdio",)),
    PublishedServer("office-word-mcp-server==1.1.11", "word_mcp_server", FASTMCP_4),
    PublishedServer("office-powerpoint-mcp-server==2.0.7", "ppt_mcp_server", SDK_1, pinned=True),
    PublishedServer("blender-mcp==2.0.0", "blender-mcp", SDK_1),
    PublishedServer("markitdown-mcp==0.0.1a7", "markitdown-mcp", SDK_2),
    PublishedServer("mcp-pandoc==0.11.1", "mcp-pandoc", SDK_2),
    PublishedServer(
        "mcp-obsidian==0.2.3", "mcp-obsidian", SDK_1, environment={"OBSIDIAN_API_KEY": "x"}
    ),
    PublishedServer("mcp-text-editor==1.0.2", "mcp-text-editor", SDK_1, pinned=True),
    PublishedServer(
        "mcp-shell-server==1.1.14", "mcp-shell-server", SDK_1, environment={"ALLOW_COMMANDS": "ls"}
    ),
)  # fmt: skip
