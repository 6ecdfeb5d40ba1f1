[
  inputs: ["{mix,.formatter}.exs", "{config,lib,mix,test,bench,native,examples}/**/*.{ex,exs}"],
  line_length: 120
]
