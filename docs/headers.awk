# A header as Doxygen should see it: the prose that opens the file documents it, and what comments indent is shown as it
# is, which to Doxygen means four spaces and an empty line before.
NR == 1 && /^\/\// { print "/// @file\n///"; opening = 1 }
opening && !/^\/\// { opening = 0 }
opening { sub(/^\/\//, "///") }
/^ *\/\/\/   / {
  if (!indented) print "///"
  sub(/\/\/\/ /, "///    ")
}
{
  indented = /^ *\/\/\/    /
  print
}
