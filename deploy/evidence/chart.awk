# Draws the results of pinning.sh: lines of NAME P50 P99 REQUESTS/S (milliseconds), and of conditions after a "#".
#
#   awk -f chart.awk pinning.txt > pinning.svg

function text(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); return s }

function write_at(x, y, style, s) { printf "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, style, text(s) }

# One measure: a bar for each row, the longest 400 wide.
function panel(title, format, value,   i, most) {
    for (i = 1; i <= rows; i++) if (value[i] > most) most = value[i]
    if (!most) most = 1
    write_at(16, y += 30, " font-weight=\"bold\"", title)
    for (i = 1; i <= rows; i++) {
        y += 22
        write_at(16, y, "", name[i])
        printf "<rect x=\"220\" y=\"%d\" width=\"%.1f\" height=\"14\" fill=\"%s\"/>\n", y - 11, 400 * value[i] / most,
            i == 1 ? "#9aa0a6" : "#1a73e8"
        write_at(226 + 400 * value[i] / most, y, "", sprintf(format, value[i]))
    }
}

/^#/ { sub(/^# */, ""); conditions[++lines] = $0; next }
NF == 4 { name[++rows] = $1; p50[rows] = $2; p99[rows] = $3; rate[rows] = $4; next }
NF { print "chart.awk: no result: " $0 > "/dev/stderr"; failed = 1; exit 1 }

END {
    if (failed || !rows) exit 1
    height = 40 + 18 * lines + 3 * (30 + 22 * rows) + 16
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n",
        height
    printf "<rect width=\"720\" height=\"%d\" fill=\"#ffffff\"/>\n", height
    write_at(16, y = 26, " font-size=\"15\" font-weight=\"bold\"", "A server beside two noisy neighbors")
    for (i = 1; i <= lines; i++) write_at(16, y += 18, " font-size=\"11\" fill=\"#5f6368\"", conditions[i])
    panel("p50, ms (less is better)", "%.2f", p50)
    panel("p99, ms (less is better)", "%.2f", p99)
    panel("requests/s (more is better)", "%d", rate)
    print "</svg>"
}
