#pragma once

// Code that several kernel builds include must not become a function that the linker may share between them: the copy
// that is kept could hold instructions this processor lacks. So it is inlined, or lies in an unnamed namespace.
#define EDGE_RAG_INLINE __attribute__((always_inline)) inline
#define EDGE_RAG_LAMBDA __attribute__((always_inline))
