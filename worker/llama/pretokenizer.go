package llama

import (
	"errors"

	"github.com/cadence-slo/cadence/worker/gguf"
)

// pretokenizer is how llama.cpp cuts text into words for one model.
type pretokenizer struct {
	override  string // name to give llama.cpp in place of the file's; "" to leave it
	recursive bool   // text must go through cutRuns first
}

// choosePretokenizer finds the fastest way that gives the same tokens.
//
// For most pre-tokenizers llama.cpp compiles a std::regex anew for every piece of text between two special tokens, which takes
// milliseconds for one chat. Only for those of GPT-2 and Llama 3 it has code of its own. Qwen2's differs from Llama 3's in one
// thing: it takes digits one by one, not in groups of up to three. A vocabulary that has no merge of two digits gives the
// same tokens either way, so such a model gets Llama 3's rule under the name "dbrx", which unlike "llama-bpe" changes nothing else.
func choosePretokenizer(path string, head *gguf.File) (pretokenizer, error) {
	if head.Tokenizer.Model != "gpt2" {
		return pretokenizer{}, nil // only byte-level BPE uses expressions
	}
	switch head.Tokenizer.PreTokenizer {
	case "llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe", "gpt-2", "phi-2":
		return pretokenizer{}, nil
	case "qwen2", "deepseek-r1-qwen":
		joined, err := mergesDigits(path, head)
		if err != nil {
			return pretokenizer{}, err
		}
		if !joined {
			return pretokenizer{override: "dbrx"}, nil
		}
	}
	return pretokenizer{recursive: true}, nil
}

var errFound = errors.New("found")

// mergesDigits tells whether some merge of the vocabulary yields two digits or more.
func mergesDigits(path string, head *gguf.File) (bool, error) {
	err := gguf.EachString(path, head, "tokenizer.ggml.merges", func(merge string) error {
		digits := 0
		for i := range len(merge) {
			if '0' <= merge[i] && merge[i] <= '9' {
				digits++
			}
		}
		if digits > 1 {
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}
