"""From request to page: cookies and CSRF, forms, languages, views, headers, errors, paging."""
