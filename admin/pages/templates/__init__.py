"""`/templates`: the templates in force, previews, drafts, versions.

shown   what is in force, one template with its preview, the versions
draft   checks texts, shows what they change, applies them
trial   sends one real message of a template, with its exchange
"""
