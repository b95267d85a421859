# Read by R by way of R_PROFILE_USER: after a report, waits while its step is held.
cat <- function(...) {
  base::cat(...)
  step <- sub('.*"step": *([0-9]+).*', "\\1", paste(..., collapse = ""))
  while (file.exists(file.path(Sys.getenv("GATE"), paste0("hold-", step)))) Sys.sleep(0.02)
}
