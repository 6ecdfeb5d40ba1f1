[
  inputs: ["{mix,.formatter}.exs", "{config,lib,mix,test,bench,native}/**/*.{ex,exs}"],
  line_length: 120
]
