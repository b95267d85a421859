# Gradient descent on a parabola, in R: a line to $SWEEP_METRICS a step, and two files to look at.
given <- commandArgs(trailingOnly = TRUE)
lr <- if (length(given) >= 1) as.numeric(given[1]) else 0.1
epochs <- if (length(given) >= 2) as.integer(given[2]) else 6
place <- as.list(Sys.getenv(c("SWEEP_METRICS", "SWEEP_CONTROL", "SWEEP_CHECKPOINT_DIR", "SWEEP_RESUME")))

state <- list(epoch = 0L, x = 10)
if (nzchar(place$SWEEP_RESUME)) state <- readRDS(place$SWEEP_RESUME)
while (state$epoch < epochs) {
  state$x <- state$x - lr * 2 * state$x
  line <- sprintf('{"step": %d, "metrics": {"loss": %.12g}}\n', state$epoch, state$x^2)
  cat(line, file = place$SWEEP_METRICS, append = TRUE)
  state$epoch <- state$epoch + 1L
  part <- file.path(place$SWEEP_CHECKPOINT_DIR, ".state.rds")
  saveRDS(state, part)
  file.rename(part, file.path(place$SWEEP_CHECKPOINT_DIR, "state.rds"))
  # {"stop": "pruned"}, or "checkpoint"; no file while the training may go on. Who leaves says so.
  if (file.exists(place$SWEEP_CONTROL) && state$epoch < epochs) {
    word <- sub('.*"stop": *"([a-z]+)".*', "\\1", paste(readLines(place$SWEEP_CONTROL, warn = FALSE), collapse = ""))
    cat(sprintf('{"saw": "%s"}\n', word), file = file.path(dirname(place$SWEEP_CONTROL), "answer.jsonl"), append = TRUE)
    quit(status = 0)
  }
}
