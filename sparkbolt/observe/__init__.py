"""What the engine measures: counters, histograms, their history, and traces for OpenTelemetry."""
