"""Taking back what a run that died had published of a batch that was never committed.

Where that is, only the run itself knew: another one may follow that has other names for its queries, or other paths.
So it is looked up in what the run has put on record, before the next one puts itself on record.
"""

from __future__ import annotations

import shutil

from anabranch.checkpoint.folder.directory import Checkpoint
from anabranch.runtime.sinks.formats import batch_prefix, sink_tag, staging_folder
from anabranch.runtime.sinks.output_folder import remove_batch
from anabranch.state.store import local_path


def take_back_output(checkpoint: Checkpoint) -> None:
    """Remove the files of the batch after the last step from all output folders that are on record."""
    last = checkpoint.last_step()
    if not checkpoint.records.has_run() or checkpoint.is_behind_spark(last):
        return
    record = checkpoint.records.run()
    batch_id = last.batch_id + last.extra + 1 if last is not None else 0
    for name, query in record["queries"].items():
        if query["sink"] is not None:
            folder, tag = local_path(query["sink"]["options"]["path"]), sink_tag(checkpoint.tag, name)
            shutil.rmtree(staging_folder(folder, tag), ignore_errors=True)
            remove_batch(folder, batch_prefix(tag, batch_id))
    for aside in (record["quarantine"], record["late_rows"]):
        if aside is not None:
            remove_batch(local_path(aside), batch_prefix(checkpoint.tag, batch_id))
