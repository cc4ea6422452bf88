"""The console: pages for the people who operate Hongyan.

    browser ──▶ app ──▶ guards (session, rule, CSRF) ──▶ pages ──▶ view (templates, languages) ──▶ browser
                                                          │
                          parts: ledger, reads, people, audit, boards

`app` builds the application and `process` serves it; `parts` holds the things that pages use; `access` has
roles and the rule of each route. `people/` knows users and sessions, `audit/` records actions, `web/`
writes pages, `live/` shares one reader among all watchers, `pages/` has one module a page.
`vendor_files` fetches the scripts of others before a build.
"""
