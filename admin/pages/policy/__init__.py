"""`/policy`: what is in force, values by lane, drafts by form or text, versions.

toml_edit   sets fields in the text and keeps its comments
draft       checks a text, shows its effects, applies it
tables      forms of one table, made from the schema
shown       what is in force, one lane, the versions
"""
