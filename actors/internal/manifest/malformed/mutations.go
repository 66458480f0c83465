package malformed

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
)

// mutation changes data, which it may overwrite, and may take from other.
type mutation func(random *rand.Rand, data, other []byte) []byte

// mutations are what happens to files: people edit them, editors and copies stop half-way, disks and merges mix them.
var mutations = []mutation{
	renamePod, addComment, useWindowsLines, cutOff, flipBit, dropLine, repeatLine, swapLines, indentLine, tabLine,
	insertNoise, pasteFrom, dropByte, addUnknownField, addMark,
}

func renamePod(random *rand.Rand, data, _ []byte) []byte {
	return bytes.Replace(data, []byte("web"), fmt.Appendf(nil, "web-%d", random.IntN(1000)), 1)
}

func addComment(random *rand.Rand, data, _ []byte) []byte {
	return slices.Concat(fmt.Appendf(nil, "# edited %d times\n", random.IntN(1000)), data)
}

func useWindowsLines(_ *rand.Rand, data, _ []byte) []byte {
	return bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
}

func cutOff(random *rand.Rand, data, _ []byte) []byte { return data[:random.IntN(len(data)+1)] }

func flipBit(random *rand.Rand, data, _ []byte) []byte {
	if len(data) > 0 {
		data[random.IntN(len(data))] ^= 1 << random.IntN(8)
	}
	return data
}

func dropByte(random *rand.Rand, data, _ []byte) []byte {
	if len(data) == 0 {
		return data
	}
	at := random.IntN(len(data))
	return slices.Delete(data, at, at+1)
}

func insertNoise(random *rand.Rand, data, _ []byte) []byte {
	noise := make([]byte, 1+random.IntN(8))
	for i := range noise {
		noise[i] = byte(random.IntN(256))
	}
	return slices.Insert(data, random.IntN(len(data)+1), noise...)
}

func pasteFrom(random *rand.Rand, data, other []byte) []byte {
	begin := random.IntN(len(other) + 1)
	end := begin + random.IntN(len(other)-begin+1)
	return slices.Insert(data, random.IntN(len(data)+1), other[begin:end]...)
}

func addUnknownField(random *rand.Rand, data, _ []byte) []byte {
	return fmt.Appendf(data, "field%d: true\n", random.IntN(1000))
}

func addMark(random *rand.Rand, data, _ []byte) []byte {
	return onLines(data, func(lines [][]byte) [][]byte {
		return slices.Insert(lines, random.IntN(len(lines)+1), []byte("---\n"))
	})
}

func dropLine(random *rand.Rand, data, _ []byte) []byte {
	return onLines(data, func(lines [][]byte) [][]byte {
		at := random.IntN(len(lines))
		return slices.Delete(lines, at, at+1)
	})
}

func repeatLine(random *rand.Rand, data, _ []byte) []byte {
	return onLines(data, func(lines [][]byte) [][]byte {
		return slices.Insert(lines, random.IntN(len(lines)), lines[random.IntN(len(lines))])
	})
}

func swapLines(random *rand.Rand, data, _ []byte) []byte {
	return onLines(data, func(lines [][]byte) [][]byte {
		a, b := random.IntN(len(lines)), random.IntN(len(lines))
		lines[a], lines[b] = lines[b], lines[a]
		return lines
	})
}

func indentLine(random *rand.Rand, data, _ []byte) []byte {
	return beforeLine(random, data, bytes.Repeat([]byte(" "), 1+random.IntN(4)))
}

func tabLine(random *rand.Rand, data, _ []byte) []byte { return beforeLine(random, data, []byte("\t")) }

func beforeLine(random *rand.Rand, data, text []byte) []byte {
	return onLines(data, func(lines [][]byte) [][]byte {
		at := random.IntN(len(lines))
		lines[at] = slices.Concat(text, lines[at])
		return lines
	})
}

// onLines changes the lines of data, of which there is at least one.
func onLines(data []byte, change func(lines [][]byte) [][]byte) []byte {
	return bytes.Join(change(bytes.SplitAfter(data, []byte("\n"))), nil)
}
