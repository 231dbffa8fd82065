package llama

// Both builds offer the same methods.
var (
	_ interface {
		Facts() Facts
		Metadata(key string) (string, bool)
		IsEOG(Token) bool
		IsControl(Token) bool
		Tokenize(text string, addSpecial, parseSpecial bool) ([]Token, error)
		AppendPiece(dst []byte, token Token, special bool) ([]byte, error)
		Close() error
	} = (*Model)(nil)
	_ interface {
		Options() ContextOptions
		Model() *Model
		Decode(*Batch) error
		Logits(row int) ([]float32, error)
		Interrupt()
		SetThreads(threads, batchThreads int) error
		SeqCopy(src, dst SeqID, from, to Pos) error
		SeqRebase(src, dst SeqID, to Pos) error
		SeqRemove(s SeqID, from, to Pos) error
		SeqPosMax(s SeqID) (Pos, error)
		Clear()
		Close() error
	} = (*Context)(nil)
	_ interface {
		Allowed(tokens []Token, ok []bool) error
		Accept(Token) error
		Close()
	} = (*Grammar)(nil)
)
