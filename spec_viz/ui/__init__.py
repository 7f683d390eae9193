"""The page: words, charts, numbers and the app itself. Reads traces; never touches a tensor."""
