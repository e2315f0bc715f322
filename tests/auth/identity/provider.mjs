// An OpenID provider on loopback: `node provider.mjs PORT RESOURCE CALLBACK`. Says "ready" once it listens.
//
// Anyone may register (RFC 7591); access tokens for RESOURCE are JWTs (RFC 8707, RFC 9068). One client is known beforehand,
// `upstream` with the secret `upstream-secret`, for an authorization server of ours that sends its users here. The pages are
// the library's own: any name is let in, with any password.
import { Provider } from "oidc-provider";

const [port, resource, callback] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: callback
    ? [{ client_id: "upstream", client_secret: "upstream-secret", redirect_uris: [callback], response_types: ["code"] }]
    : [],
  scopes: ["openid", "offline_access", "notes:read", "notes:write"],
  claims: { openid: ["sub"], profile: ["name"] },
  pkce: { required: () => true },
  features: {
    registration: { enabled: true },
    revocation: { enabled: true },
    introspection: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        audience: resource,
        scope: "notes:read notes:write",
        accessTokenFormat: "jwt",
        accessTokenTTL: 600,
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
