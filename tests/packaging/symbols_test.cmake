# Checks that LIBRARY exports only names that the public HEADERS declare: C++ names of the namespace, and C names that
# begin with its name. Members of a class that the headers name but do not define must not be exported.
#
# The test first applies its rules to names that break them. It fails if a rule does not report them.
cmake_minimum_required(VERSION 3.25)

# symbol_errors(NAMES HEADERS OUT): sets OUT to a sentence for each demangled name in NAMES that must not be exported.
function(symbol_errors names headers out)
  set(text)
  foreach(header IN LISTS headers)
    file(READ ${header} content)
    string(REGEX REPLACE "//[^\n]*" "" content "${content}")
    string(REPLACE ";" "@" content "${content}")  # in a list it would part
    string(APPEND text " ${content}")
  endforeach()
  # Words, each with a blank on both sides.
  string(REGEX REPLACE "[^A-Za-z0-9_]+" "  " words " ${text} ")
  string(REGEX MATCHALL "(struct|class) +[A-Za-z]+@" named "${text}")
  list(TRANSFORM named REPLACE "^[a-z]+ +([A-Za-z]+)@$" "\\1")
  set(errors)
  foreach(name IN LISTS names)
    string(REGEX REPLACE "^(typeinfo|typeinfo name|vtable) for " "" entity "${name}")
    string(REGEX REPLACE "[[(].*$" "" entity "${entity}")  # arguments, [abi:cxx11]
    if(NOT entity MATCHES "^(collectives::[A-Za-z0-9_:~=]+|collectives_[a-z0-9_]+)$")
      list(APPEND errors "exported, and not of the namespace: ${name}")
      continue()
    endif()
    string(REPLACE "::" ";" parts "${entity}")
    foreach(part IN LISTS parts)
      string(REGEX REPLACE "^~|=+$" "" part "${part}")
      if(NOT words MATCHES " ${part} ")
        list(APPEND errors "exported, and ${part} is in no public header: ${name}")
        break()
      elseif(part IN_LIST named AND NOT text MATCHES "(struct|class) +(COLLECTIVES_EXPORT +)?${part}[ a-z]*[:{]")
        list(APPEND errors "exported, and ${part} is inside: ${name}")
        break()
      endif()
    endforeach()
  endforeach()
  set(${out} "${errors}" PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE public ${SOURCE}/include/*)
symbol_errors("collectives::Communicator::Impl::look();std::deque<int>::push();fmt::v9::format();secret_function;vtable for collectives::Communicator::Impl;collectives::Executor::advance();typeinfo for std::_Mutex_base"
              "${public}" errors)
list(LENGTH errors count)
if(NOT count EQUAL 7)
  list(JOIN errors "\n  " errors)
  message(FATAL_ERROR "7 of 7 names are not public, ${count} were found:\n  ${errors}")
endif()

find_program(NM nm REQUIRED)
execute_process(COMMAND ${NM} --dynamic --defined-only --demangle ${LIBRARY} OUTPUT_VARIABLE names
                COMMAND_ERROR_IS_FATAL ANY)
string(STRIP "${names}" names)
string(REPLACE ";" "," names "${names}")
string(REPLACE "\n" ";" names "${names}")
list(TRANSFORM names REPLACE "^[0-9a-f]+ [A-Za-z] " "")
if(IS_DIRECTORY ${SOURCE}/${HEADERS})
  set(headers ${public})
else()
  set(headers ${SOURCE}/${HEADERS})
endif()
if(DEFINED ALSO)  # a header of the project's components, which are linked to LIBRARY
  list(APPEND headers ${SOURCE}/${ALSO})
endif()
symbol_errors("${names}" "${headers}" errors)
list(LENGTH names count)
message(STATUS "${count} symbols")
if(errors OR count LESS 2)
  list(JOIN errors "\n  " errors)
  message(FATAL_ERROR "${LIBRARY}:\n  ${errors}")
endif()
