# Settings of targets. No setting is global.

# mold links the programs of developers. The sanitizer builds have 150 programs, which GNU ld links in 1 s each and mold
# in 0.3 s. GNU ld links libraries. GCC knows mold from version 12.1 on.
set(COLLECTIVES_LINKER)
if(COLLECTIVES_DEVELOPER_MODE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL
   12.1)
  find_program(COLLECTIVES_MOLD mold)
  mark_as_advanced(COLLECTIVES_MOLD)
  if(COLLECTIVES_MOLD)
    set(COLLECTIVES_LINKER -fuse-ld=mold)
  endif()
endif()

# collectives_checks(TARGET): warnings, for developers only, and sanitizers, for C and C++.
function(collectives_checks target)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    target_link_options(${target} PRIVATE ${COLLECTIVES_LINKER})
  endif()
  if(COLLECTIVES_DEVELOPER_MODE)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
                                             $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
                                             $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>)
    if(COLLECTIVES_WARNINGS_AS_ERRORS)
      # Some warnings of GCC 12 are wrong when it optimizes. It reports that std::string copies 2^63 bytes, and with
      # sanitizers that std::regex reads uninitialized memory. It also warns of fences, which the thread sanitizer does
      # not support but the code needs.
      target_compile_options(${target} PRIVATE -Werror -Wno-error=restrict -Wno-error=maybe-uninitialized)
      if(COLLECTIVES_SANITIZE STREQUAL thread)
        target_compile_options(${target} PRIVATE -Wno-error=tsan)
      endif()
    endif()
  endif()
  if(COLLECTIVES_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${COLLECTIVES_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    # The address sanitizer reports accesses through null and out of objects, too. These two checks of the
    # undefined-behaviour sanitizer take a quarter of the time to compile.
    if(COLLECTIVES_SANITIZE MATCHES address AND COLLECTIVES_SANITIZE MATCHES undefined)
      target_compile_options(${target} PRIVATE -fno-sanitize=null,object-size)
    endif()
    target_link_options(${target} PRIVATE -fsanitize=${COLLECTIVES_SANITIZE})
  endif()
endfunction()

# Whether headers are precompiled, which halves the time to compile most sources. GCC ignores a precompiled header that
# does not fit the options of a target; other compilers stop. ccache does not store objects with precompiled headers
# unless its variable CCACHE_SLOPPINESS allows it (scripts/test.sh).
set(COLLECTIVES_PRECOMPILE OFF)
if(COLLECTIVES_DEVELOPER_MODE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU
   AND (NOT CMAKE_CXX_COMPILER_LAUNCHER MATCHES ccache OR "$ENV{CCACHE_SLOPPINESS}" MATCHES pch_defines))
  set(COLLECTIVES_PRECOMPILE ON)
endif()

# collectives_precompile(TARGET HEADERS...): precompiles HEADERS for TARGET and for targets that reuse them.
function(collectives_precompile target)
  if(COLLECTIVES_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_target_properties(${target} PROPERTIES PCH_WARN_INVALID OFF)
  endif()
endfunction()

# collectives_reuse_headers(TARGET FROM): uses the precompiled headers of the target FROM, if it has any.
function(collectives_reuse_headers target from)
  if(COLLECTIVES_PRECOMPILE AND TARGET ${from})
    target_precompile_headers(${target} REUSE_FROM ${from})
    set_target_properties(${target} PROPERTIES PCH_WARN_INVALID OFF)
  endif()
endfunction()

# collectives_unity(TARGET): in sanitizer builds, compiles the sources of each folder of TARGET as one source, because
# headers take longer to compile than sources. With the thread sanitizer the library takes 190 s of one core in place of
# 878 s. A source with options of its own stays alone. Price: names of anonymous namespaces must differ in a folder.
function(collectives_unity target)
  if(NOT COLLECTIVES_SANITIZE)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(GET source PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "sources_${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()

# collectives_c_defaults(TARGET): C99.
function(collectives_c_defaults target)
  set_target_properties(${target} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  collectives_checks(${target})
endfunction()

# collectives_defaults(TARGET): C++20, hidden symbols.
function(collectives_defaults target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
  # No program interposes the library's functions, so calls inside it bypass the procedure linkage table.
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)
  collectives_checks(${target})
endfunction()

# collectives_hardly_optimised(TARGET): for code outside the library that takes longer to compile than to run. Does not
# optimize at all under the address and undefined-behaviour sanitizers, whose checks take long to optimize.
function(collectives_hardly_optimised target)
  if(COLLECTIVES_SANITIZE MATCHES address)
    target_compile_options(${target} PRIVATE -O0)
  elseif(CMAKE_BUILD_TYPE STREQUAL Release)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# collectives_hardly_optimised_sources(SOURCES...): for sources of this folder that parse a command line or print
# results, in targets outside the library. The header of CLI11 emits hundreds of functions in each source.
# tools/arguments.cpp, on a busy machine, takes these seconds to compile with the address sanitizer:
#
#                                               -O0   -Og   -O1
#   with the undefined-behaviour sanitizer       18    20    31
#   without it                                   12    15    23
#
# GCC 12 may crash on a precompiled header of another optimization level, so these sources use none.
function(collectives_hardly_optimised_sources)
  set(options)
  if(COLLECTIVES_SANITIZE)
    set(options -O0)
    if(COLLECTIVES_SANITIZE MATCHES address)
      list(APPEND options -fno-sanitize=undefined)
    endif()
  elseif(CMAKE_BUILD_TYPE STREQUAL Release)
    set(options -O1)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "${options}")
endfunction()

# collectives_cuda_defaults(TARGET): for CUDA sources. The arithmetic equals the processor's: no fused operations, and
# constants are computed by the host compiler.
function(collectives_cuda_defaults target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CUDA_VISIBILITY_PRESET hidden
                                             CUDA_RUNTIME_LIBRARY Static)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -fmad=false --expt-relaxed-constexpr>)
  if(COLLECTIVES_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
endfunction()

# collectives_shared_library(TARGET): a library with a soname that exports public symbols only.
function(collectives_shared_library target)
  collectives_defaults(${target})
  set(exported ${PROJECT_SOURCE_DIR}/cmake/exported_symbols.map)
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${COLLECTIVES_SOVERSION}
                                             LINK_DEPENDS ${exported})
  target_link_options(${target} PRIVATE -Wl,--version-script=${exported})
endfunction()
