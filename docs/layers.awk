# Draws the layers of src/ from the list below:   awk -f docs/layers.awk >docs/layers.svg
#
# One row of the picture on each line: folders from high to low, then a colon and the purpose of the row. The numbers in
# the picture count from the lowest folder up. Folders joined by "+" have one number: they do not include one another.
# The picture sets dark text on pastel boxes and mid-grey text beside them, so it reads on light and on dark pages.
function row(line, colour) {
  ++rows
  split(line, part, / : /)
  folders[rows] = part[1]
  purpose[rows] = part[2]
  colours[rows] = colour
}
BEGIN {
  row("tools : programs: collectives_run, collectives_info", "#e6e6e6")
  row("c_interface+mpi_drop_in : the calls from C and of MPI programs", "#cfe3f7")
  row("mpi+ucx+cuda : loadable components, one folder each", "#cfe3f7")
  row("tuning communicator : public calls, and numbers measured here", "#cfe3f7")
  row("device compression/top_k : GPU memory; top-k compression", "#d3ecd6")
  row("point_to_point execution planning monitoring : messages; perform, choose, observe", "#d3ecd6")
  row("hierarchical ring+reduce_to_one : the algorithms, as lists of Steps", "#fbe7c0")
  row("transport shared_memory : bytes between hosts and inside one", "#f4d5d0")
  row("topology bootstrap : where ranks run, and how they meet", "#f4d5d0")
  row("compression reduction : codecs and arithmetic over spans", "#e3d9f3")
  row("steps injection core base : language of algorithms; faults; basics", "#e3d9f3")

  count = 0  # numbers, from the lowest row and its last folder up
  for (r = rows; r > 0; --r) {
    n = split(folders[r], names, " ")
    for (i = n; i > 0; --i) number[r, i] = ++count
  }
  width = 760; height = 29; left = 8; boxes = 452
  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" " \
         "font-family=\"sans-serif\" font-size=\"13\">\n", width, rows * height + 30, width, rows * height + 30
  print "<title>The layers of src/: a folder includes only folders with lower numbers</title>"
  for (r = 1; r <= rows; ++r) {
    n = split(folders[r], names, " ")
    y = (r - 1) * height + 4
    wide = (boxes - (n - 1) * 6) / n
    for (i = 1; i <= n; ++i) {
      x = left + (i - 1) * (wide + 6)
      text = names[i]
      gsub(/\+/, ", ", text)
      printf "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"24\" rx=\"4\" fill=\"%s\" stroke=\"#8b949e\"/>\n", \
             x, y, wide, colours[r]
      printf "<text x=\"%.1f\" y=\"%d\" fill=\"#57606a\" font-size=\"10\">%d</text>\n", x + 6, y + 16, number[r, i]
      printf "<text x=\"%.1f\" y=\"%d\" fill=\"#1f2328\" text-anchor=\"middle\">%s</text>\n", \
             x + wide / 2 + 4, y + 16.5, text
    }
    printf "<text x=\"%d\" y=\"%d\" fill=\"#7d8590\" font-size=\"12\">%s</text>\n", \
           left + boxes + 12, y + 16, purpose[r]
  }
  printf "<text x=\"%d\" y=\"%d\" fill=\"#7d8590\" font-size=\"12\">Each folder is a layer. It includes only folders " \
         "with a lower number; a test reads the include lines.</text>\n", left, rows * height + 20
  print "</svg>"
}
