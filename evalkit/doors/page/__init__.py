"""`evalkit play --page`: an episode played by a person, in a browser on this machine.

`fields` makes form fields of a tool's JSON schema, and arguments of what was filled in. `forms` are all ways to reply
in one turn. `showing` says what a page shows, `server` answers requests. The pages stand beside those of
`evalkit view`.
"""
