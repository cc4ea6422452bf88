"""Sign-in at an OpenID Connect provider: authorization code with PKCE (docs/console.md).

settings    the provider of the configuration, checked
kept_fetch  a document of the provider, fetched once for all
provider    discovery, keys, and the exchange of a code
id_token    checks of an ID token
logins      sign-ins under way, each bound to one browser
members     claims → the user, and its roles
"""
