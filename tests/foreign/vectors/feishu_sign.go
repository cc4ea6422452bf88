// Prints signs of a Feishu robot as go-lark makes them; tests/foreign/test_group_robots.py reads feishu_sign.json.
//
// From an empty folder, with ROOT the repository's:
//
//	go mod init vectors && go get github.com/go-lark/lark@v1.14.0
//	cp ROOT/tests/foreign/vectors/feishu_sign.go main.go
//	go run . > ROOT/tests/foreign/vectors/feishu_sign.json
package main

import (
	"encoding/json"
	"os"

	"github.com/go-lark/lark"
)

type vector struct {
	Secret    string `json:"secret"`
	Timestamp int64  `json:"timestamp"`
	Sign      string `json:"sign"`
}

func main() {
	vectors := []vector{
		{Secret: "xxx", Timestamp: 1661860880},
		{Secret: "a+b/c=", Timestamp: 1790000000},
		{Secret: "p%q r~", Timestamp: 1},
	}
	for place := range vectors {
		one := &vectors[place]
		sign, err := lark.GenSign(one.Secret, one.Timestamp)
		if err != nil {
			panic(err)
		}
		one.Sign = sign
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", " ")
	if err := out.Encode(vectors); err != nil {
		panic(err)
	}
}
