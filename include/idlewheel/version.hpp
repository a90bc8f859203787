// version.hpp - the one place where the version stands; CMakeLists.txt reads it from here.
#pragma once

namespace idlewheel {

// MAJOR.MINOR.PATCH by semantic versioning.
inline constexpr const char version[] = "0.1.0";

}  // namespace idlewheel
