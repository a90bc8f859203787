// release_only.hpp - included by every benchmark.
#pragma once

#ifndef NDEBUG
#error "a benchmark of a debug build measures the assertions"
#endif
