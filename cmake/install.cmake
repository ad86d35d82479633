# Layout of `cmake --install`. The installed tree can be moved, because no file in it contains its path.
#
# A COMPONENT can be installed alone. cmake/packages.cmake makes a Debian package of each.
include(CMakePackageConfigHelpers)
if(PROJECT_IS_TOP_LEVEL AND EXISTS /etc/debian_version AND CMAKE_LIBRARY_ARCHITECTURE)
  # Debian's folder for libraries. CMake uses it only below /usr. The tree has the same layout for every prefix and for
  # packages.
  set(CMAKE_INSTALL_LIBDIR lib/${CMAKE_LIBRARY_ARCHITECTURE} CACHE PATH "Libraries, below the prefix")
endif()
include(GNUInstallDirs)

set(cmake_directory ${CMAKE_INSTALL_LIBDIR}/cmake/collectives)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR}
           OUTPUT_VARIABLE bin_to_lib)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
           OUTPUT_VARIABLE pkgconfig_to_prefix)

# collectives_install_library(TARGET NAME RUNTIME DEVELOPMENT): installs a library with headers, targets file and
# NAME.pc.
function(collectives_install_library target name runtime development)
  install(TARGETS ${target} EXPORT ${name}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${runtime} NAMELINK_COMPONENT ${development}
          FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ${development})
  install(EXPORT ${name} NAMESPACE collectives:: FILE ${name}-targets.cmake
          DESTINATION ${cmake_directory} COMPONENT ${development})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${development})
endfunction()

collectives_install_library(collectives collectives runtime development)
configure_file(cmake/collectives-config.cmake.in ${PROJECT_BINARY_DIR}/collectives-config.cmake @ONLY)
# A minor version of 0.x may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/collectives-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/collectives-config.cmake ${PROJECT_BINARY_DIR}/collectives-config-version.cmake
        DESTINATION ${cmake_directory} COMPONENT development)
install(FILES README.md DESIGN.md CHANGES.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development FILES_MATCHING PATTERN *.md PATTERN *.svg)

if(TARGET collectives_mpi)
  collectives_install_library(collectives_mpi collectives_mpi mpi mpi_development)
  set_target_properties(collectives_mpi PROPERTIES INSTALL_RPATH $ORIGIN)
endif()

if(TARGET collectives_ucx)
  install(TARGETS collectives_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ucx NAMELINK_SKIP)
  set_target_properties(collectives_ucx PROPERTIES INSTALL_RPATH $ORIGIN)
endif()

if(TARGET collectives_cuda)
  install(TARGETS collectives_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cuda NAMELINK_SKIP)
  set_target_properties(collectives_cuda PROPERTIES INSTALL_RPATH $ORIGIN)
endif()

# Libraries to preload under programs of one MPI each.
foreach(drop_in collectives_mpi_openmpi collectives_mpi_mpich)
  if(TARGET ${drop_in})
    install(TARGETS ${drop_in} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT drop_in)
  endif()
endforeach()

if(TARGET mnist_cuda)  # in no package, for cuDNN is in none of Debian's
  install(TARGETS mnist_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tools_cuda)
endif()

foreach(program collectives_run collectives_info collectives_bench mnist_trainer)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
    set_target_properties(${program} PROPERTIES INSTALL_RPATH $ORIGIN/${bin_to_lib})
    # All programs share one manual page. This file is the page's name for one program.
    file(CONFIGURE OUTPUT ${program}.1 CONTENT ".so man1/collectives.1\n")
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${program}.1 docs/collectives.1
            DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  endif()
endforeach()
