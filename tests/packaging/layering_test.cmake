# Who may include whom, read off the #include lines:
#
#   cmake -D ROOT=<the repository> -D SCRATCH=<a directory to write in> -P layering_test.cmake
#
# The rules are first tried on a small tree that breaks each of them, so that a rule that catches nothing is noticed.
cmake_minimum_required(VERSION 3.25)

set(standard "<[a-z_0-9]+>")  # <vector>; not <mpi.h>, not <fmt/format.h>
set(algorithms "\"(ring|hierarchical|reduce_to_one)/|\"(direct|circle)\\.hpp\"")

# check(WHO may|may_not HEADERS WHY): a rule, for the file `path` and the header `included` in quotes or brackets.
macro(check who verb headers why)
  if(path MATCHES "${who}")
    string(REGEX MATCH "^(${headers})" hit "${included}")
    if((hit AND "${verb}" STREQUAL "may_not") OR (NOT hit AND "${verb}" STREQUAL "may"))
      list(APPEND errors "${path} includes ${included}: ${why}")
    endif()
  endif()
endmacro()

# layering_errors(TREE OUT): a sentence for each line of TREE/include and TREE/src that breaks a rule.
function(layering_errors tree out)
  set(errors)
  file(GLOB_RECURSE paths RELATIVE ${tree} ${tree}/include/*.h ${tree}/include/*.hpp
                                            ${tree}/src/*.hpp ${tree}/src/*.cpp ${tree}/src/*.cu)
  foreach(path IN LISTS paths)
    file(STRINGS ${tree}/${path} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^[^\"<]*([\"<][^\">]*[\">]).*" "\\1" included "${line}")
      check("^include/.*pp$" may "\"collectives/|<mpi\\.h>|${standard}"
            "public headers stand on public headers and the standard library")
      check("^include/.*\\.h$" may "\"collectives/(collectives\\.h|export\\.hpp)\"|<(mpi|stddef|stdint)\\.h>"
            "C headers stand on C")
      check("^src/((ring|hierarchical|reduce_to_one)/|direct\\.hpp|circle\\.hpp)" may
            "${algorithms}|\"(step|parts)\\.hpp\"|\"collectives/types\\.hpp\"|${standard}"
            "an algorithm emits Steps and knows nothing else")
      check("^src/transport/" may_not
            "${algorithms}|\"(reduction|step|parts|algorithm|executor)\\.hpp|\"collectives/(plan|communicator|collectives)\\."
            "a transport knows bytes only")
      check("^src/simulation\\." may_not
            "\"(executor|communicator|environment|wait|watch|meet|tuning)\\.|\"(transport|shared_memory|bootstrap)/|<chrono>"
            "a simulation is a function of its arguments")
      check("^src/reduction([.]|/.*[.][ch]pp$)" may
            "\"reduction(/[a-z]+)?\\.hpp\"|\"cuda/shared_code\\.hpp\"|\"collectives/types\\.hpp\"|<hwy/[a-z_]+\\.h>|${standard}"
            "the arithmetic knows spans of elements only")
      check("^src/compression/(codecs|halves|int8|kernels|select|radix_select)[.][ch]pp$" may
            "\"(compression/(kernels|select)|cuda/shared_code|reduction/(family|formats|loops))\\.hpp\"|\"compression/[a-z0-9]+\\.cpp\"|\"collectives/(codec|types)\\.hpp\"|<hwy/[a-z_]+\\.h>|${standard}"
            "a codec, or a choice of elements, knows spans of values only")
      if(NOT path MATCHES "^(include/collectives/(mpi\\.hpp|collectives_mpi\\.h)|src/(bootstrap|c_interface)/mpi\\.cpp|src/transport/mpi\\.[ch]pp|src/mpi_drop_in/mpi\\.hpp)$")
        check("" may_not "<mpi\\.h>|\"mpi\\.h\"|\"collectives/mpi\\.hpp\"" "only the component mpi and the drop-in know MPI")
      endif()
      if(NOT path MATCHES "^src/mpi_drop_in/")
        check("" may_not "\"mpi_drop_in/" "the drop-in stands on the library")
      endif()
      if(NOT path MATCHES "\\.cuh?$|^src/nccl/|^src/cuda/device\\.cpp$")
        check("" may_not "<(cuda|nccl)[a-z_]*\\.h>|<(cub|thrust|cuda)/" "only the component cuda knows CUDA")
      endif()
      if(NOT path MATCHES "^src/transport/ucx(_meeting|_worker)?\\.[ch]pp$")
        check("" may_not "<uc[pts]/" "only the component ucx knows UCX")
      endif()
      if(NOT path MATCHES "^src/transport/ucx(_component|_meeting|_worker)?\\.[ch]pp$")
        check("" may_not "\"transport/ucx(_worker)?\\.hpp\"" "the component ucx is loaded when it is there, and never linked")
      endif()
    endforeach()
    # The launchers' variables (RANK, TF_CONFIG, ...) are the bootstrap's to read, ours are environment.cpp's.
    file(STRINGS ${tree}/${path} lines REGEX "getenv[ \t]*\\(")
    foreach(line IN LISTS lines)
      if(NOT path MATCHES "^src/(environment\\.cpp$|bootstrap/)" OR (path MATCHES "^src/bootstrap/" AND
                                                                     line MATCHES "COLLECTIVES_"))
        list(APPEND errors "${path} calls getenv: the environment is read in src/environment.cpp")
      endif()
    endforeach()
  endforeach()
  set(${out} "${errors}" PARENT_SCOPE)
endfunction()

# Each of these files breaks one rule, meet.cpp and two.hpp two; the last three break none.
set(broken ${SCRATCH}/layering)
file(REMOVE_RECURSE ${broken})
file(WRITE ${broken}/include/collectives/one.hpp "#include \"step.hpp\"\n")
file(WRITE ${broken}/include/collectives/two.hpp "#include <cuda_runtime.h>\n")
file(WRITE ${broken}/include/collectives/three.h "#include \"collectives/types.hpp\"\n")
file(WRITE ${broken}/src/ring/ring.hpp "#include \"collectives/transport.hpp\"\n")
file(WRITE ${broken}/src/direct.hpp "#  include <fmt/format.h>\n")
file(WRITE ${broken}/src/transport/tcp.cpp "#include \"reduction.hpp\"\n")
file(WRITE ${broken}/src/reduction.cpp "#include \"executor.hpp\"\n")
file(WRITE ${broken}/src/plan.cpp "#include <mpi.h>\n")
file(WRITE ${broken}/src/simulation.cpp "#include <chrono>\n")
file(WRITE ${broken}/src/wait.cpp "auto* text = std::getenv(\"HOME\");\n")
file(WRITE ${broken}/src/bootstrap/world.cpp "auto* text = std::getenv(\"COLLECTIVES_PORT\");\n")
file(WRITE ${broken}/src/meet.cpp "#include <ucp/api/ucp.h>\n#include \"transport/ucx.hpp\"\n")
file(WRITE ${broken}/src/compression/int8.cpp "#include \"executor.hpp\"\n")
file(WRITE ${broken}/src/executor.cpp "#include <nccl.h>\n")
file(WRITE ${broken}/src/reduction/fold.cu "#include <cub/cub.cuh>\n#include \"cuda/launch.cuh\"\n")
file(WRITE ${broken}/src/circle.hpp "#include <vector>\n#include \"step.hpp\"\n#include \"ring/ring.hpp\"\n")
file(WRITE ${broken}/src/split.cpp "#include \"mpi_drop_in/mpi.hpp\"\n")
file(WRITE ${broken}/src/bootstrap/mpi.cpp "#include <mpi.h>\nauto* text = std::getenv(\"RANK\");\n")
layering_errors(${broken} errors)
list(LENGTH errors count)
if(NOT count EQUAL 17)
  list(JOIN errors "\n  " errors)
  message(FATAL_ERROR "15 of 18 files break 17 rules, ${count} were found:\n  ${errors}")
endif()

layering_errors(${ROOT} errors)
if(errors)
  list(JOIN errors "\n  " errors)
  message(FATAL_ERROR "layering:\n  ${errors}")
endif()
