"""Stage 5 of 8: results become named series in sinks and on the console.

One iteration passes through here in this order: `collect` turns RLlib's nested result into one flat
line of named numbers (`names`), `system` adds the machine's load, `stop` checks whether a goal is
reached, `sinks` write the line down, `console` shows it.
"""
