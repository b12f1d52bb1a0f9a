"""What a user touches: session, engine, query, writer, run."""
