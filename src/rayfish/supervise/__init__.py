"""What watches over processes: logs, hanging calls, workers that die, messages about errors, signals."""
