// Serves a provider with one client until its standard input ends; prints its address.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const [redirect, client, secret] = process.argv.slice(2);
const accounts = {
  bo: { sub: "bo", email: "bo@example.com", email_verified: true, groups: ["sre"] },
  eve: { sub: "eve", email: "eve@example.com", email_verified: true, groups: [] },
};
const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      { client_id: client, client_secret: secret, redirect_uris: [redirect], response_types: ["code"], grant_types: ["authorization_code"] },
    ],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["groups"] },
    conformIdTokenClaims: false,
    pkce: { required: () => true },
    cookies: { keys: ["a key of the tests"] },
    findAccount: (_context, id) => ({ accountId: id, claims: () => accounts[id] ?? { sub: id } }),
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
process.stdin.on("end", () => process.exit(0)).resume();
