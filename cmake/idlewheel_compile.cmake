# How a target of ours is compiled: C++20, our warnings, and the sanitizers asked for. All private, so
# that nothing of it reaches who links with us.
function(idlewheel_compile target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
    -Wnon-virtual-dtor -Wimplicit-fallthrough
    $<$<BOOL:${IDLEWHEEL_WERROR}>:-Werror>)
  if(IDLEWHEEL_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${IDLEWHEEL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${IDLEWHEEL_SANITIZE})
  endif()
endfunction()
