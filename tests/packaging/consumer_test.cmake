# Builds a program outside the project (tests/packaging/consumers/) from an installed tree and runs it with two ranks,
# before and after the tree has been moved.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/installed)
check_moves(${SCRATCH}/installed)
use(${CONSUMER} ${SCRATCH}/installed)
file(RENAME ${SCRATCH}/installed ${SCRATCH}/moved)
use(${CONSUMER} ${SCRATCH}/moved)
file(REMOVE_RECURSE ${SCRATCH})
