# Cards: HEARTH_GPU=none compiles kernels by the host compiler, for emulated cards; cuda and hip by nvcc and hipcc.
# Sets GPU_LIBRARIES and GPU_DEFINITIONS, and defines
#   hearth_kernels(OUT SOURCE...)  the objects of kernels, made by the vendor's compiler
set(HEARTH_GPU none CACHE STRING "What drives cards: none (emulated ones alone), cuda, hip")
set_property(CACHE HEARTH_GPU PROPERTY STRINGS none cuda hip)
set(HEARTH_GPU_ARCHITECTURES "" CACHE STRING "Cards that kernels are compiled for; empty: sm_80 sm_90, or gfx1030 gfx1100 and, where hipcc knows it, gfx1201")

set(GPU_LIBRARIES)
set(GPU_DEFINITIONS)
if(HEARTH_GPU STREQUAL "none")
  return()
endif()

set(GPU_FLAGS -std=c++20 -O3 -I${CMAKE_CURRENT_SOURCE_DIR}/src)
if(HEARTH_GPU STREQUAL "cuda")
  set(architectures ${HEARTH_GPU_ARCHITECTURES})
  if(NOT architectures)
    set(architectures sm_80 sm_90)
  endif()
  separate_arguments(architectures)
  find_package(CUDAToolkit REQUIRED)
  set(GPU_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  set(GPU_LIBRARIES CUDA::cudart_static)
  set(GPU_INCLUDES ${CUDAToolkit_INCLUDE_DIRS})
  list(APPEND GPU_FLAGS -ccbin ${CMAKE_CXX_COMPILER} -Werror all-warnings -x cu)
  foreach(architecture ${architectures})
    string(REPLACE sm_ compute_ virtual ${architecture})
    list(APPEND GPU_FLAGS -gencode arch=${virtual},code=${architecture})
  endforeach()
  # Cards newer than all of these compile the last one's PTX when they first see it.
  list(APPEND GPU_FLAGS -gencode arch=${virtual},code=${virtual})
elseif(HEARTH_GPU STREQUAL "hip")
  set(rocm $ENV{ROCM_PATH} /opt/rocm)
  find_program(HIPCC hipcc HINTS ${rocm} PATH_SUFFIXES bin REQUIRED)
  set(architectures ${HEARTH_GPU_ARCHITECTURES})
  if(NOT architectures)
    set(architectures gfx1030 gfx1100)
    execute_process(
      COMMAND ${HIPCC} --offload-arch=gfx1201 --offload-device-only -x hip -c /dev/null -o /dev/null
      RESULT_VARIABLE unknown OUTPUT_QUIET ERROR_QUIET)
    if(unknown EQUAL 0)
      list(APPEND architectures gfx1201)
    endif()
  endif()
  separate_arguments(architectures)
  find_path(HIP_INCLUDE hip/hip_runtime_api.h HINTS ${rocm} PATH_SUFFIXES include REQUIRED)
  find_library(AMDHIP amdhip64 HINTS ${rocm} PATH_SUFFIXES lib REQUIRED)
  set(GPU_COMPILER ${HIPCC})
  set(GPU_LIBRARIES ${AMDHIP})
  set(GPU_INCLUDES ${HIP_INCLUDE})
  list(APPEND GPU_FLAGS -Wall -Werror -x hip)
  foreach(architecture ${architectures})
    list(APPEND GPU_FLAGS --offload-arch=${architecture})
  endforeach()
else()
  message(FATAL_ERROR "expected none, cuda or hip for HEARTH_GPU, got '${HEARTH_GPU}'")
endif()
string(TOUPPER ${HEARTH_GPU} vendor)
list(JOIN architectures " " architectures)
set(GPU_DEFINITIONS HEARTH_GPU_${vendor} HEARTH_GPU_ARCHITECTURES="${architectures}")

function(hearth_kernels out)
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/kernels/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${GPU_COMPILER} ${GPU_FLAGS} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source}
      DEPFILE ${object}.d
      COMMENT "Building kernels ${name} for ${architectures}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/kernels)
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
