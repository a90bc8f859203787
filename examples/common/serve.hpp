// serve.hpp - a program made of servers: one on the main thread, more on threads of their own, and the
// signals that end them.
#pragma once
#include <string>

#include "server.hpp"

namespace example {

// Runs from the options to the end: listens, serves until a signal, prints a summary. Returns the
// exit status.
int serve(const std::string& program, const server_options& wanted, const server::factory& make);

}  // namespace example
