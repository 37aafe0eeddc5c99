# Modules for GPUs, which a program opens when somebody asks for their GPUs (src/backend/gpu/modules.h):
#   libhearth_emu.so    emulated GPUs: kernels compiled by the host compiler; built for tests, packages and tools/build --gpu emulated
#   libhearth_cuda.so   NVIDIA's, by nvcc, with the CUDA runtime inside: HEARTH_GPU=cuda
#   libhearth_hip.so    AMD's, by hipcc: HEARTH_GPU=hip; libamdhip64 is opened before it
# The vendors' libraries of matmuls, cuBLASLt and rocBLAS, are opened while a module runs; their headers have to be there when it
# is built (HEARTH_CUBLAS and ROCM_PATH say where else to look), else it multiplies by its own kernels alone.
# Defines
#   opens_modules(TARGET)     a program that opens them: what they call of it is exported; called before other libraries are linked
#   hearth_emulator, hearth_emulated   objects of emulated GPUs and of their kernels, for tests that have them inside
set(HEARTH_GPU "" CACHE STRING "Vendors whose GPUs get a module: cuda, hip, or cuda;hip")
set(HEARTH_GPU_ARCHITECTURES "" CACHE STRING "GPUs that kernels are compiled for, like gfx1101 or sm_89; empty: all that are supported and that the compiler knows")

file(GLOB gpu_kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/ops/*/*_gpu.cpp)
file(GLOB emulator_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/backend/gpu/emu/*.cpp)
file(GLOB vendor_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/backend/gpu/vendor/*.cpp)
list(FILTER vendor_sources EXCLUDE REGEX "/blas_")
set(gpu_module_source ${CMAKE_CURRENT_SOURCE_DIR}/src/ops/gpu_module.cpp)

set(modules)
# hearth_module(NAME SOURCE...): libhearth_NAME.so, beside the program. It calls what the program exports, and shows its entry alone.
function(hearth_module name)
  add_library(hearth_module_${name} MODULE ${ARGN})
  set_target_properties(hearth_module_${name} PROPERTIES OUTPUT_NAME hearth_${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_include_directories(hearth_module_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_options(hearth_module_${name} PRIVATE -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/module.map)
  target_link_libraries(hearth_module_${name} PRIVATE fmt::fmt)
  set(modules ${modules} hearth_module_${name} PARENT_SCOPE)
endfunction()
function(opens_modules target)
  set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON)
  # All of them: what modules alone call would be missing.
  target_link_libraries(${target} PRIVATE -Wl,--whole-archive $<TARGET_FILE:hearth_base> $<TARGET_FILE:hearth_ir>
                        $<TARGET_FILE:hearth_backend> $<TARGET_FILE:hearth_distributed> $<TARGET_FILE:hearth_ops> -Wl,--no-whole-archive hearth_ops)
  set(vendors ${modules})
  list(REMOVE_ITEM vendors hearth_module_emu)
  if(vendors)
    add_dependencies(${target} ${vendors})
  endif()
endfunction()

add_library(hearth_emulator OBJECT ${emulator_sources} ${gpu_module_source})
add_library(hearth_emulated OBJECT ${gpu_kernels})
foreach(part hearth_emulator hearth_emulated)
  set_target_properties(${part} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${part} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(${part} PUBLIC hearth_distributed Boost::context)
endforeach()
# For libraries that work on emulated GPUs.
target_link_options(hearth_emulator INTERFACE -Wl,--export-dynamic-symbol=hearth_emulated_call)
headers_once(hearth_emulated <ops/gpu_support.h>)
if(HEARTH_SANITIZE STREQUAL "thread")
  target_compile_options(hearth_emulated PRIVATE -fno-sanitize=thread)
endif()
hearth_module(emu $<TARGET_OBJECTS:hearth_emulator> $<TARGET_OBJECTS:hearth_emulated>)
target_link_libraries(hearth_module_emu PRIVATE Boost::context)

# architectures_of(OUT PREFIX): those of HEARTH_GPU_ARCHITECTURES that begin with it.
function(architectures_of out prefix)
  set(found ${HEARTH_GPU_ARCHITECTURES})
  separate_arguments(found)
  list(FILTER found INCLUDE REGEX "^${prefix}")
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# vendor_module(NAME ARCHITECTURES COMPILER FLAG...): its kernels are compiled by that compiler.
function(vendor_module name architectures compiler)
  set(flags -std=c++20 -O3 -fPIC -I${CMAKE_CURRENT_SOURCE_DIR}/src ${ARGN})
  if(name STREQUAL "cuda")
    list(TRANSFORM flags REPLACE "^-fPIC$" "-Xcompiler=-fPIC")
  endif()
  set(objects)
  list(JOIN architectures " " words)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/kernels_${name})
  foreach(source ${gpu_kernels})
    get_filename_component(kernel ${source} NAME_WE)
    # nvcc names what is local to a file by its process else.
    set(seed $<$<STREQUAL:${name},cuda>:--frandom-seed=${kernel}>)
    set(object ${CMAKE_BINARY_DIR}/kernels_${name}/${kernel}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${compiler} ${flags} ${seed} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source}
      DEPFILE ${object}.d
      COMMAND_EXPAND_LISTS
      COMMENT "Building kernels ${kernel} for ${words}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  hearth_module(${name} ${objects} ${vendor_sources} ${gpu_module_source})
  string(TOUPPER ${name} upper)
  target_compile_definitions(hearth_module_${name} PRIVATE HEARTH_GPU_${upper} HEARTH_GPU_ARCHITECTURES="${words}")
  set(modules ${modules} PARENT_SCOPE)
endfunction()

# blas_of(NAME LIBRARY INCLUDE): leaves a module's matmuls to that library too, if its headers were found.
function(blas_of name library include)
  set(source none)
  if(include)
    set(source ${library})
    target_include_directories(hearth_module_${name} SYSTEM PRIVATE ${include})
  endif()
  target_sources(hearth_module_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src/backend/gpu/vendor/blas_${source}.cpp)
  message(STATUS "Matmuls of ${name}: ${source}")
endfunction()

if("cuda" IN_LIST HEARTH_GPU)
  find_package(CUDAToolkit REQUIRED)
  architectures_of(architectures sm_)
  if(NOT architectures)
    set(architectures sm_80 sm_86 sm_89 sm_90)
  endif()
  # Machine code for each is made of one PTX, the first one's, which newer GPUs compile when they first see it.
  list(GET architectures 0 first)
  string(REPLACE sm_ compute_ virtual ${first})
  list(JOIN architectures "," codes)
  set(flags -ccbin ${CMAKE_CXX_COMPILER} -x cu -gencode "arch=${virtual},code=[${codes},${virtual}]")
  if(HEARTH_WERROR)
    list(APPEND flags -Werror all-warnings)
  endif()
  vendor_module(cuda "${architectures}" ${CUDAToolkit_NVCC_EXECUTABLE} ${flags})
  target_link_libraries(hearth_module_cuda PRIVATE CUDA::cudart_static)
  find_path(CUBLASLT_INCLUDE cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${HEARTH_CUBLAS} $ENV{HEARTH_CUBLAS}
            ${CMAKE_CURRENT_SOURCE_DIR}/build/cublas PATH_SUFFIXES include)
  blas_of(cuda cublaslt "${CUBLASLT_INCLUDE}")
  # Where the system does not look for it by itself.
  find_library(CUBLASLT cublasLt HINTS ${CUDAToolkit_LIBRARY_DIR} ${HEARTH_CUBLAS} $ENV{HEARTH_CUBLAS}
               ${CMAKE_CURRENT_SOURCE_DIR}/build/cublas PATH_SUFFIXES lib)
  if(CUBLASLT)
    target_compile_definitions(hearth_module_cuda PRIVATE HEARTH_CUBLASLT="${CUBLASLT}")
  endif()
endif()

if("hip" IN_LIST HEARTH_GPU)
  set(rocm $ENV{ROCM_PATH} /opt/rocm)
  find_program(HIPCC hipcc HINTS ${rocm} PATH_SUFFIXES bin REQUIRED)
  find_path(HIP_INCLUDE hip/hip_runtime_api.h HINTS ${rocm} PATH_SUFFIXES include REQUIRED)
  architectures_of(architectures gfx)
  if(NOT architectures)
    foreach(one gfx1030 gfx1100 gfx1101 gfx1102 gfx1151 gfx1200 gfx1201)
      execute_process(
        COMMAND ${HIPCC} --offload-arch=${one} --offload-device-only -x hip -c /dev/null -o /dev/null
        RESULT_VARIABLE unknown OUTPUT_QUIET ERROR_QUIET)
      if(unknown EQUAL 0)
        list(APPEND architectures ${one})
      endif()
    endforeach()
  endif()
  set(flags -Wall -x hip)
  if(HEARTH_WERROR)
    list(APPEND flags -Werror)
  endif()
  foreach(one ${architectures})
    list(APPEND flags --offload-arch=${one})
  endforeach()
  vendor_module(hip "${architectures}" ${HIPCC} ${flags})
  target_include_directories(hearth_module_hip SYSTEM PRIVATE ${HIP_INCLUDE})
  find_path(ROCBLAS_INCLUDE rocblas/rocblas.h HINTS ${rocm} PATH_SUFFIXES include)
  blas_of(hip rocblas "${ROCBLAS_INCLUDE}")
endif()
