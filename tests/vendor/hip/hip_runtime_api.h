// Declares the part of HIP that src/backend/gpu/vendor uses, for vendor_test.cpp; fake_hip.cpp implements it.
#pragma once

#include <cstddef>

extern "C" {

typedef enum {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorInvalidDeviceFunction = 98,
  hipErrorInvalidImage = 200,
  hipErrorNoBinaryForGpu = 209,
  hipErrorNotReady = 600,
  hipErrorStreamCaptureUnsupported = 900,
  hipErrorStreamCaptureUnjoined = 904,
} hipError_t;
typedef enum { hipStreamCaptureStatusNone, hipStreamCaptureStatusActive } hipStreamCaptureStatus;
typedef enum { hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal } hipStreamCaptureMode;
typedef enum { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost } hipMemcpyKind;
typedef enum {
  hipDeviceAttributeIntegrated,
  hipDeviceAttributeMultiprocessorCount,
  hipDeviceAttributeMaxSharedMemoryPerBlock,
} hipDeviceAttribute_t;
typedef struct ihipStream_t* hipStream_t;
typedef struct ihipEvent_t* hipEvent_t;
typedef struct ihipGraph* hipGraph_t;
typedef struct hipGraphExec* hipGraphExec_t;
typedef void (*hipHostFn_t)(void*);
typedef struct {
  char name[256];
} hipDeviceProp_t;

enum { hipHostMallocPortable = 1, hipHostMallocCoherent = 0x40000000 };
enum { hipEventDefault = 0, hipEventDisableTiming = 2 };
enum { hipStreamNonBlocking = 1 };

hipError_t hipGetDeviceCount(int*);
hipError_t hipSetDevice(int);
hipError_t hipDriverGetVersion(int*);
hipError_t hipRuntimeGetVersion(int*);
hipError_t hipDeviceGetPCIBusId(char*, int, int);
hipError_t hipDeviceGetName(char*, int, int);
hipError_t hipDeviceTotalMem(size_t*, int);
hipError_t hipDeviceGetAttribute(int*, hipDeviceAttribute_t, int);
hipError_t hipDeviceGetStreamPriorityRange(int*, int*);
hipError_t hipMemGetInfo(size_t*, size_t*);
hipError_t hipMalloc(void**, size_t);
hipError_t hipFree(void*);
hipError_t hipHostMalloc(void**, size_t, unsigned);
hipError_t hipHostFree(void*);
hipError_t hipMemcpyAsync(void*, const void*, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemsetAsync(void*, int, size_t, hipStream_t);
hipError_t hipLaunchHostFunc(hipStream_t, hipHostFn_t, void*);
hipError_t hipStreamCreateWithPriority(hipStream_t*, unsigned, int);
hipError_t hipStreamDestroy(hipStream_t);
hipError_t hipStreamQuery(hipStream_t);
hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned);
hipError_t hipStreamIsCapturing(hipStream_t, hipStreamCaptureStatus*);
hipError_t hipStreamBeginCapture(hipStream_t, hipStreamCaptureMode);
hipError_t hipStreamEndCapture(hipStream_t, hipGraph_t*);
hipError_t hipEventCreateWithFlags(hipEvent_t*, unsigned);
hipError_t hipEventDestroy(hipEvent_t);
hipError_t hipEventRecord(hipEvent_t, hipStream_t);
hipError_t hipEventElapsedTime(float*, hipEvent_t, hipEvent_t);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t*, hipGraph_t, unsigned long long);
hipError_t hipGraphDestroy(hipGraph_t);
hipError_t hipGraphExecDestroy(hipGraphExec_t);
hipError_t hipGraphLaunch(hipGraphExec_t, hipStream_t);
hipError_t hipGetLastError(void);
const char* hipGetErrorName(hipError_t);
const char* hipGetErrorString(hipError_t);
}
