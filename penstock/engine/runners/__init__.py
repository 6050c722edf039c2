"""How tasks are executed: on Spark (`spark`), or one after the other in this process for tests (`inline`)."""
