# A program outside the project (tests/consumers/), built of an installed tree and run by two ranks; and again after the
# tree has moved.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/installed)
check_moves(${SCRATCH}/installed)
use(${CONSUMER} ${SCRATCH}/installed)
file(RENAME ${SCRATCH}/installed ${SCRATCH}/moved)
use(${CONSUMER} ${SCRATCH}/moved)
file(REMOVE_RECURSE ${SCRATCH})
