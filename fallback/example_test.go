package fallback_test

import (
	"fmt"

	"github.com/holdfast-go/holdfast/fallback"
)

func ExampleNewStore() {
	store, err := fallback.NewStore(10_000)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(store.Len(), "keys remembered")
	// Output: 0 keys remembered
}
