package modelfile

// Known is a model that [Pull] and [Find] know by name.
type Known struct {
	Name        string `json:"name"`
	URL         string `json:"url"`
	File        string `json:"file"`   // in the cache folder
	SHA256      string `json:"sha256"` // "" when not pinned: the caller supplies it or accepts what comes
	Description string `json:"description"`
}

// KnownModels lists them.
func KnownModels() []Known {
	qwen := func(size, about string) Known {
		file := "qwen2.5-" + size + "-instruct-q4_k_m" + extension
		return Known{
			Name:        "qwen2.5-" + size + "-instruct-q4_k_m",
			URL:         "https://huggingface.co/Qwen/Qwen2.5-" + upper(size) + "-Instruct-GGUF/resolve/main/" + file,
			File:        file,
			Description: about,
		}
	}
	return []Known{
		qwen("0.5b", "Qwen2.5 0.5B Instruct, 4-bit: about 0.4 GB, for laptops without a GPU"),
		qwen("1.5b", "Qwen2.5 1.5B Instruct, 4-bit: about 1 GB, better answers"),
	}
}

// upper writes 0.5b as 0.5B.
func upper(size string) string { return size[:len(size)-1] + "B" }

func lookup(name string) (Known, bool) {
	for _, k := range KnownModels() {
		if k.Name == name {
			return k, true
		}
	}
	return Known{}, false
}
