"""Stage 5 of 8: takes results, gives named series in sinks and on the console.

One iteration passes through here in this order: `collect` turns RLlib's nested result into one flat
line of named numbers (`names`), `system` adds the machine's load, `stop` says whether a goal is
reached, `sinks` write the line down, `console` shows it.
"""
