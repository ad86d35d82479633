# collectives_defaults(TARGET): C++20, hidden symbols, warnings (developers only), sanitizers. Nothing global.
function(collectives_defaults target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
  # Nobody interposes the library's functions: calls inside it need no detour through a table.
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)
  if(COLLECTIVES_DEVELOPER_MODE)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
                                             -Wnon-virtual-dtor -Woverloaded-virtual)
    if(COLLECTIVES_WARNINGS_AS_ERRORS)
      target_compile_options(${target} PRIVATE -Werror)
    endif()
  endif()
  if(COLLECTIVES_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${COLLECTIVES_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${COLLECTIVES_SANITIZE})
  endif()
endfunction()

# collectives_not_optimised(TARGET): for code around the library that takes longer to compile than it ever runs, which is
# so under the address and undefined-behaviour sanitizers, whose checks the optimiser would have to wade through.
function(collectives_not_optimised target)
  if(COLLECTIVES_SANITIZE MATCHES address)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# collectives_shared_library(TARGET): a library with a soname that exports what is public, and nothing else.
function(collectives_shared_library target)
  collectives_defaults(${target})
  set(exported ${PROJECT_SOURCE_DIR}/cmake/exported_symbols.map)
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${COLLECTIVES_SOVERSION}
                                             LINK_DEPENDS ${exported})
  target_link_options(${target} PRIVATE -Wl,--version-script=${exported})
endfunction()
