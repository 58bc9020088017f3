/* Loads a SavedModel through TensorFlow's C API and runs its default signature on raw strings.

   loader SAVEDMODEL INPUT TRANSLATION SCORE TRUNCATED [OP_LIBRARY ...]

   Tensors are named as in a signature, "operation:index". Standard input is a sequence of batches:
   a uint32 count, then for each text a uint32 length and its bytes. Standard output answers "+"
   once loaded, then for each batch "+", the seconds as a double, the count, and for each text the
   score as a float, truncated as a byte, the length and the bytes of the translation. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/core/platform/ctstring.h"

/* A stock server runs with XLA compilation disabled: what must be compiled fails. */
extern void disable_xla_compilation(void) __asm__("_ZN10tensorflow21DisableXlaCompilationEv");

static TF_Status* status;

static void require_ok(const char* what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s: %s\n", what, TF_Message(status));
  exit(1);
}

static TF_Output find(TF_Graph* graph, const char* name) {
  char* operation = strdup(name);
  char* colon = strchr(operation, ':');
  *colon = 0;
  TF_Output output = {TF_GraphOperationByName(graph, operation), atoi(colon + 1)};
  if (!output.oper) {
    fprintf(stderr, "%s: no such operation\n", operation);
    exit(1);
  }
  free(operation);
  return output;
}

static void read_exactly(void* target, size_t size) {
  if (fread(target, 1, size, stdin) != size) {
    fprintf(stderr, "the request ends early\n");
    exit(1);
  }
}

static void write_exactly(const void* source, size_t size) { fwrite(source, 1, size, stdout); }

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static TF_Tensor* read_batch(uint32_t count) {
  int64_t shape[] = {count};
  TF_Tensor* tensor = TF_AllocateTensor(TF_STRING, shape, 1, count * sizeof(TF_TString));
  TF_TString* strings = TF_TensorData(tensor);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t length;
    read_exactly(&length, sizeof length);
    char* text = malloc(length + 1);
    read_exactly(text, length);
    TF_TString_Init(&strings[i]);
    TF_TString_Copy(&strings[i], text, length);
    free(text);
  }
  return tensor;
}

int main(int argc, char** argv) {
  status = TF_NewStatus();
  disable_xla_compilation();
  for (int i = 6; i < argc; i++) {
    TF_LoadLibrary(argv[i], status);
    require_ok(argv[i]);
  }
  TF_SessionOptions* options = TF_NewSessionOptions();
  TF_Graph* graph = TF_NewGraph();
  const char* tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
  require_ok("load");
  TF_Output input = find(graph, argv[2]);
  TF_Output outputs[3];
  for (int i = 0; i < 3; i++) outputs[i] = find(graph, argv[3 + i]);
  write_exactly("+", 1);
  fflush(stdout);

  uint32_t count;
  while (fread(&count, sizeof count, 1, stdin) == 1) {
    TF_Tensor* texts = read_batch(count);
    TF_Tensor* results[3];
    double began = now();
    TF_SessionRun(session, NULL, &input, &texts, 1, outputs, results, 3, NULL, 0, NULL, status);
    double seconds = now() - began;
    require_ok("run");
    TF_TString* translations = TF_TensorData(results[0]);
    float* scores = TF_TensorData(results[1]);
    unsigned char* truncated = TF_TensorData(results[2]);
    uint32_t rows = TF_Dim(results[0], 0);
    write_exactly("+", 1);
    write_exactly(&seconds, sizeof seconds);
    write_exactly(&rows, sizeof rows);
    for (uint32_t i = 0; i < rows; i++) {
      uint32_t length = TF_TString_GetSize(&translations[i]);
      write_exactly(&scores[i], sizeof *scores);
      write_exactly(&truncated[i], 1);
      write_exactly(&length, sizeof length);
      write_exactly(TF_TString_GetDataPointer(&translations[i]), length);
    }
    fflush(stdout);
    TF_DeleteTensor(texts);
    for (int i = 0; i < 3; i++) TF_DeleteTensor(results[i]);
  }
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteGraph(graph);
  TF_DeleteSessionOptions(options);
  TF_DeleteStatus(status);
  return 0;
}
