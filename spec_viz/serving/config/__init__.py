"""A vLLM server's command from a few choices: tables of what there is, rules that check, forms that write it.

Nothing here is executed. What is offered was read in vLLM 0.32.0's own package unless a row says otherwise; `build` in
`builder.py` is the way in.
"""
