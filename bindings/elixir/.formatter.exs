[
  inputs: ["{mix,.formatter}.exs", "{lib,test,bench,native}/**/*.{ex,exs}"],
  line_length: 120
]
