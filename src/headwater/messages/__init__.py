"""The only vocabulary between processes: typed structs, never pickled."""
