# Checks the symbols that the drop-in LIBRARY exports and the libraries that it needs:
#
#   cmake -D LIBRARY=... -D NM=... -D READELF=... -P symbols.cmake
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " [A-Za-z] [^\n]+" symbols "${symbols}")
set(others ${symbols})
list(FILTER others EXCLUDE REGEX "^ [TW] (MPI_[A-Z][a-z_]+|mpi_[a-z_08]+_)$")
if(others OR NOT " T MPI_Allreduce" IN_LIST symbols AND NOT " W MPI_Allreduce" IN_LIST symbols)
  message(FATAL_ERROR "beside functions of MPI it shows: ${others}")
endif()
execute_process(COMMAND ${READELF} -d ${LIBRARY} OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
if(needed MATCHES "NEEDED[^\n]*(libmpi|libcollectives)")
  message(FATAL_ERROR "it brings an MPI, or another copy of the library:\n${needed}")
endif()
