"""The measurements of the engine: counters, histograms, their history, and traces for OpenTelemetry."""
