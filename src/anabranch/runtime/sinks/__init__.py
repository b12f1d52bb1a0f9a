"""Where answers go.

answers        from what processors have written to every query's sink
formats        the formats, their options, and the sinks that write them
memory         the memory sink
output_folder  the files of an output folder that readers see, and how files get there
leftovers      taking back what a run that died had published of a batch
"""
