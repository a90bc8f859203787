// timeout_policy.hpp - the limits of a connection, shared by all connections that have the same.
//
// What   Plain numbers. 0 is off, everywhere, never "at once". A policy must outlive the connections
//        that use it and stay as it is meanwhile; to change a connection's limits, give it another.
//
//   field       its clock starts    what moves it                              at expiry
//   idle        at the start        bytes in; bytes out that the peer took     expiry_reason::idle
//   read_idle   at the start        bytes in                                   expiry_reason::read_idle
#pragma once
#include "idlewheel/wheel/timespan.hpp"

namespace idlewheel {

struct timeout_policy {
  timespan idle{};       // silence in both directions
  timespan read_idle{};  // nothing received

  // Throws std::invalid_argument that names the field and the value: a negative limit. O(1).
  void validate() const;
};

}  // namespace idlewheel
